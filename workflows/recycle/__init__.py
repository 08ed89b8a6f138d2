"""ReCycle: training that goes on through failures by adapting its pipeline schedule.

A library of pure models (planning, checking, failure transitions, trace simulation), a small real
training run, and pictures; and the workflows that offer them as a service. Importing this package
imports no solver, no torch and no matplotlib: each lives in the one module that needs it.

    job, failures, profiles    what is trained, which workers are dead, measured times
    schedule, check            a schedule with its figures; the independent checker
    routing                    who takes over the micro-batches of dead workers
    one_f_one_b, bounds        the fault-free 1F1B schedule; closed forms and lower bounds
    greedy, exact              the list scheduler; what the exact solvers share
    cpsat, highs               the exact solvers
    planner                    a plan: schedule, bound, gap, status
    plan_tasks, plan_set       which plans to make ahead of failures; making them
    normalize, advise          which failure counts to prefer; what the next failure costs
    state, roles, transitions  a job's control state and what events do to it
    control                    stores for the control state
    traces, simulate           failure traces and the systems compared on them
    systems, baselines, oobleck
    training_*                 real training on this machine, with real kills
    pictures                   SVG

Only these know the platform:

    flows                      the workflows and steps
    stored, drawings           plans written to and read from the database; their pictures
    simulation_service         simulations of stored plan sets
    database_control           a job's control state in the database
    training_service           real training whose controller is a step
"""
