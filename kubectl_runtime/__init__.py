"""Kubernetes controllers for Python code that blocks: the names that a controller's author imports.

Import them by `from kubectl_runtime import NAME`; `help(NAME)` shows an example. More names are in the modules named by
topic: `from kubectl_runtime.TOPIC import NAME`. Built-in kinds are in `kubectl_runtime.resources`.
"""
from kubectl_runtime.core.base.version import VERSION
from kubectl_runtime.facade import contents, door

__version__ = VERSION
__doc__ = f"""{__doc__}
{contents()}

Each name is imported on first use, so that `import kubectl_runtime` costs nothing.
"""
__all__, __getattr__, __dir__ = door(__name__)
