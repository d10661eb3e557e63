"""Tools of one's own: functions that the model may call, with an honest answer to "what if it was cut off?".

Light on purpose: programs that only declare tools import this. What runs them is in ``host`` and ``mcp``."""

from harness_durable.tools.declare import NOT_HAPPENED, UNSURE, Tool, ToolContext, tool

__all__ = ("NOT_HAPPENED", "UNSURE", "Tool", "ToolContext", "tool")
