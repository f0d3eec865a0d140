"""The command line. Each command is a function of its name, in a module that is imported only when
the command is called.
"""

# `stoker --help` shows these lines without importing the commands.
GROUPS = {
    "Build": {
        "run": "Run any build command with as many jobs as fit in memory.",
        "build": "Build a source tree into a verified wheel.",
        "develop": "Build a source tree and install it in editable mode.",
        "matrix": "Build every variant of stoker.toml, or slim a wheel for each.",
        "watch": "Show a running build from another terminal.",
    },
    "Plan": {
        "plan": "Print the settings of a build, and where each comes from.",
        "doctor": "List what this machine lacks for a build, with the fixes.",
        "toolchain": "Install compilers and build tools without root.",
        "export": "Write a build as a Dockerfile, CI workflow or cluster job.",
    },
    "Understand": {
        "diagnose": "Name the cause of a failed build, with evidence and fix.",
        "history": "List runs, and what each of their steps needed.",
        "report": "Write a page about a run, or a trace for Perfetto.",
        "graph": "Show targets, what blocks them, and what a change rebuilds.",
        "simulate": "Predict how long a measured build takes elsewhere.",
    },
    "Speed up": {
        "cache": "Show, count, fill and clear the compiler cache.",
    },
    "Wheels": {
        "inspect": "Show device code, dependencies and sizes of a wheel.",
        "slim": "Remove the device code of all but the chosen GPUs.",
        "package": "Make a wheel portable: run paths, requirements, tags.",
        "verify": "Check a wheel against its plan and its tags.",
        "install": "Install the variant that suits this machine.",
        "catalogue": "Publish wheels, rank them for a machine, serve them.",
    },
    "Clean up": {
        "clean": "Remove build folders and other files of stoker.",
        "container": "List, enter and remove containers of builds.",
    },
}
COMMANDS = {name: text for group in GROUPS.values() for name, text in group.items()}
# Modules of commands that are not named like them.
MODULES = {
    "develop": "build",
    "doctor": "plan",
    "graph": "report",
    "inspect": "wheel",
    "package": "wheel",
    "slim": "wheel",
    "verify": "wheel",
    "watch": "history",
}
# Commands of earlier versions, and what replaces them.
MOVED = {
    "completion": "stoker help --completion SHELL",
    "explain": "stoker diagnose --explain [CAUSE]",
    "options": "stoker plan --options [PATTERN]",
    "gc": "stoker clean --all",
    "prune": "stoker catalogue prune",
    "publish": "stoker catalogue publish",
    "select": "stoker catalogue select",
    "serve": "stoker catalogue serve",
    "trace": "stoker report --trace",
    "unpublish": "stoker catalogue remove",
    "variants": "stoker plan --list",
}
