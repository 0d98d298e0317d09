"""How many points does a handed-in lab get? The checks of the lab, run by the grader and not by the notebook.

| module     | process    | what                                                             |
|------------|------------|------------------------------------------------------------------|
| reading    | grader     | a notebook's definitions and calls of checks, from its JSON      |
| report     | grader     | all submissions, some at a time; JSON, CSV and a line for each   |
| supervisor | supervisor | one a submission: limits, sandbox, deadlines, ends all processes |
| runner     | runner     | calls the checks; never runs a line of the submission            |
| preloaded  | runner     | the process that its ranks are forked from                       |
| answers    | ranks      | a submission's function, run where a check calls it              |
| nbgrader   | exporting  | a solved lab as an assignment of nbgrader                        |
| otter      | exporting  | a lab's tasks as tests of Otter                                  |
"""
