"""How does one cell run on several processes? `launch` starts ranks, and ends them whatever happens.

| module     | side   | what                                                        |
|------------|--------|-------------------------------------------------------------|
| entry      | kernel | `launch`, and what it refuses before anything starts        |
| world      | kernel | have ranks started, wait for them, end them: the whole life |
| request    | kernel | ask for a keeper and its ranks                              |
| standby    | kernel | start the ranks of the next launch ahead                    |
| patience   | kernel | the deadline: waits for a processor do not count            |
| interrupts | kernel | Ctrl-C, noted until nothing is half done                    |
| plan       | kernel | which backend and which device a rank gets                  |
| server     | kernel | the process that ranks are forked from, and how to ask it   |
| keeper     | server | the parent of the ranks of one world                        |
| packing    | both   | functions, arguments and results through shared memory      |
| pickling   | both   | what a notebook defines, by value                           |
| carried    | both   | where the notebook stands, how it prints and logs           |
| rank       | rank   | what a rank does from its first to its last instruction     |
| output     | kernel | what ranks print, marked with the rank                      |
| blame      | kernel | which rank is the cause, and the one sentence that says so  |
| hints      | both   | what to do about errors that look strange from a notebook   |
| stacks     | both   | where a rank stands, in the reader's own lines              |
| recorder   | both   | which collectives a rank has entered                        |
| bars       | both   | one bar for the whole world                                 |
| existing   | rank   | ranks that torchrun or Slurm has started                    |
| on_ray     | kernel | ranks that Ray Train places                                 |
"""

from allranks.launch.bars import progress
from allranks.launch.blame import LaunchError, RankFailed, RanksTimedOut
from allranks.launch.entry import launch

__all__ = ["LaunchError", "RankFailed", "RanksTimedOut", "launch", "progress"]

for _name in __all__:  # `allranks.launch` is the function: these are found there too
    setattr(launch, _name, globals()[_name])
