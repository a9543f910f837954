"""The audit log: who did what with which record, one line each, tied together so that nothing can be taken away unseen.

Why it exists: every reveal, write, delete, change of who may do what, and refusal leaves a line before its answer leaves. No
line, no reveal: while the log cannot be written, ``Trail.put`` raises, and what would have been told stays untold.

What it may touch: the clock, errors and telemetry; a folder of its own. It knows no record, no store and no HTTP: the keyed hash
of the chain and the memory that outlives the folder are given to it.

====================  =============================================================================
``chain``             a line's form, and the keyed hash over it and the line before
``members``           every member that a line may have, in one table
``segments``          the files: names, the end of the last one, appending whole lines or nothing
``memory``            what is remembered beside the folder, so that what was cut off is missed
``opening``           how the log of a folder is gone on with
``marks``             which record a line is about, without telling its key
``trail``             what lines are put into; full disks, checkpoints, what is kept
``sink``              the port of all this: what others see of the trail
``noting``            what one request tells of records on its way through the use cases
``refusals``          refusals, bounded: a flood of them cannot fill the disk
``verify``            whether every line is there, unchanged and in its place
``reading``           the lines in their order, those that are still to come included
``shipping``          lines to other places after they were written, by ``syslog`` for one
``baits``             records that nobody has a reason to look at
``witness``           all of these joined, for those who tell the log things
====================  =============================================================================

A line is written to the folder first, and shipped to other places afterwards, so that no collector can stand in the way.
"""
