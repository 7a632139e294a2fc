"""The kernel that runs the book's notebooks."""

from __future__ import annotations

from ipykernel.kernelspec import get_kernel_dict
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager


class ThisPython(AsyncKernelManager):
    """Starts ipykernel with the running interpreter.

    A kernel named `python3` that the reader registered earlier, of another environment perhaps,
    must not be what runs the book.
    """

    transport_encryption = "auto"  # Else the kernel warns that its local port is not encrypted.

    @property
    def kernel_spec(self) -> KernelSpec:
        """The specification that ipykernel writes for `sys.executable`.

        Without the history of what was typed: it is not typed, and its one database per user can
        hold up kernels that start side by side, or for ever on some network file systems.
        """
        return KernelSpec(resource_dir="", **get_kernel_dict(
            ["--HistoryManager.enabled=False"]))
