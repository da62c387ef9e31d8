"""A program's text, parsed and never run."""

import ast


def parsed(text: str, filename: str) -> ast.Module | str:
    """The module, or the sentence that says why Python refuses it."""
    try:
        return ast.parse(text, filename=filename)
    except SyntaxError as error:
        where = f"{filename}, line {error.lineno}" if error.lineno else filename
        return f"{where}: syntax error: {error.msg}"
    except (RecursionError, MemoryError):
        return f"{filename}: this cannot be read as Python: it is nested too deeply"
    except ValueError as error:
        return f"{filename}: this is not a Python program: {error}"
