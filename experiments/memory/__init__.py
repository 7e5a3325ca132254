"""What a state can carry: counted for all binary histories, and learnt on five tasks."""
