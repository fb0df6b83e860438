"""iterq: iterated Q-networks, a window of consecutive Bellman updates learned at once.

chain.py is the idea, bellman.py the base algorithms, networks.py the function spaces; they do not know each other.
"""

__version__ = "0.1.0"
