"""The Olmo 3 recipe for longer contexts, in parts that can be tried one by one."""
