"""Parts of the composition root that are large enough for a file of their own: settings in, one joined part out.

Why it exists: ``bootstrap`` says in which order things start and end; what each of them is made of stands here. Nothing here
names a concrete engine, listens, or starts anything in the background.

What it may touch: settings, and whatever the part is made of.
"""
