"""Recurrent PPO inside one jit, on tasks that need a memory."""
