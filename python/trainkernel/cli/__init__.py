"""The command line: ``tk-compile``, and starters of the MLIR tools.

``options`` declares the options, ``compile`` does the work, ``outputs`` decides and writes the files, ``script`` runs
the user's file, ``display`` shows progress and errors, ``streams`` and ``signals`` are the program's edges to the
system; ``shims`` are tk-opt, tk-translate and tk-lsp-server.
"""
