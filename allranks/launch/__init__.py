"""How does one cell run on several processes? `launch` starts ranks, and ends them whatever happens.

| module   | side   | what                                                       |
|----------|--------|------------------------------------------------------------|
| entry    | kernel | `launch`, and what it refuses before anything starts       |
| world    | kernel | start the ranks, wait for them, end them: the whole life   |
| plan     | kernel | which backend and which device a rank gets                 |
| server   | kernel | start the process that ranks are forked from               |
| preload  | server | what that process loads, and how it cleans up              |
| packing  | both   | functions, arguments and results through shared memory     |
| rank     | rank   | what a rank does from its first to its last instruction    |
| output   | kernel | what ranks print, marked with the rank                     |
| blame    | kernel | which rank is the cause, and the one sentence that says so |
| stacks   | both   | where a rank stands, in the reader's own lines             |
| recorder | both   | which collectives a rank has entered                       |
| bars     | both   | one bar for the whole world                                |
| existing | rank   | ranks that torchrun or Slurm has started                   |
| on_ray   | kernel | ranks that Ray Train places                                |
"""

from allranks.launch.bars import progress
from allranks.launch.blame import LaunchError, RankFailed, RanksTimedOut
from allranks.launch.entry import launch

__all__ = ["LaunchError", "RankFailed", "RanksTimedOut", "launch", "progress"]
