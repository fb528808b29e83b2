"""What bench/run.py is made of; python3's standard library only."""
