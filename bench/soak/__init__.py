"""An engine under random conversations and faults for as long as wanted; every answer is compared with a cold one. Run as a program."""
