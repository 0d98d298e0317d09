"""Let Ray's processes start in a third of the time, without the grammar of IRIs.

jsonschema imports the package of this name if it can, to tell whether a string is an IRI. That compiles a
grammar: 1.4 s of CPU, twice in each of Ray's processes. Nothing there asks about an IRI.
"""

raise ImportError("the tests of Ray do without the grammar of IRIs: see this file")
