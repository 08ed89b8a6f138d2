"""Measuring Apiary against what one would use instead: `apiary bench`.

The parts, from the ground up: `workloads` says what is asked of every system; `dataset` fills their
databases alike; `systems/` has one module per system; `hosting` runs each of them in a process of
its own; `proxy` puts a round trip between application and database; `measuring` and `counting` take
the figures; `running` is the plan of a whole run; `report` and `plots` write down what came out.
"""
