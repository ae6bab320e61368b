"""The command line: ``tk-compile``, and starters of the MLIR tools.

``options`` declares the options, ``compile`` does the work, ``script`` runs the user's file, ``display`` shows progress
and errors; ``shims`` are tk-opt, tk-translate and tk-lsp-server.
"""
