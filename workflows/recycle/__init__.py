"""ReCycle: training that goes on through failures by adapting its pipeline schedule.

A library of pure models (planning, checking, failure transitions, trace simulation), a small real
training run, and pictures. Nothing here imports the platform, and importing this package imports
no solver, no torch and no matplotlib: each lives in the one module that needs it.

    job, failures      what is trained, and which workers are dead
    schedule, check    a schedule with its figures; the independent checker
    one_f_one_b        the fault-free 1F1B schedule
    bounds, greedy     lower bounds; the list scheduler
    cpsat, highs       exact solvers
    planner            a plan: schedule, bound, gap, status
    normalize          which failure counts to prefer, and the moves to get there
    plan_set           every plan ahead of the failures
    state, transitions a job's control state and what events do to it
    traces, simulate   failure traces and the systems compared on them
    training_*         real training on this machine, with real kills
    pictures           SVG
"""
