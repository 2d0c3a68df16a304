"""The rules that find and remove a reason for the time of a launch; `reasons.py` lists them in their order."""
