"""`stoker graph`: the targets of a build folder, what each needs, and what a change rebuilds."""
