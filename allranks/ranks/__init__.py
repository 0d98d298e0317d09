"""Ranks without processes: blocking programs of several ranks in one interpreter, timed by the α–β model.

| module   | what                                                                       |
|----------|----------------------------------------------------------------------------|
| world    | which message meets which, when it arrives, who waits, who is stuck          |
| meetings | a collective: who has entered it, what each rank gets, what it costs         |
| faults   | the sentences about a world that cannot go on, in the words of `launch`      |
| patterns | small programs that show who waits for whom, run without an interpreter     |
| replay   | runs a rank's program until it has to wait, and again when it has its answer |
| source   | what is changed in a program before MicroPython runs it; lines stay lines    |

A page ships these modules with a small torch of its own (`book/_ext/page_python`); a kernel has real ranks.
"""
