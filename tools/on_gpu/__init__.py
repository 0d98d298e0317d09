"""What does a GPU make of this book? The parts of `make gpu-check`; tools/gpu_check.py runs them.

Every part takes the device as an argument and does on a CPU what it does on a GPU, only smaller: the tests
run that.

| module   | what                                                                  |
|----------|-----------------------------------------------------------------------|
| machine  | which device, which ranks, and what is missing                        |
| timing   | seconds of a call on a device; two ways to do a thing, interleaved    |
| ceilings | how fast copies, matrix products and all-reduces can be               |
| held     | bytes that a device really held, beside the formulas                  |
| sizing   | which model and which batch fill a device                             |
| training | the running model, scaled up: seconds a step, and its MFU             |
| where    | where a step's time goes: from a trace to a paragraph                 |
| taught   | what the book builds by hand, beside torch's own                      |
| kernels  | products by their rows and their cut, attention, a call's own cost    |
| link     | copies to the host and back, and what they cost the kernels beside    |
| steps    | the passes of a layer, recomputation, Adam, a decoded token           |
| forbidden| what the programs of *What NCCL forbids* do under NCCL itself         |
| traced   | two ranks' steps under NCCL, as torch's profiler writes them down     |
| parts    | the parts of the check, each made of the modules above                |
| suites   | the tests and notebooks that run on this machine                      |
| table    | all results of a machine, as JSON and as a page                       |
| sections | what that page says of each part                                      |
"""
