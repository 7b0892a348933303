"""bench compare: is a change between two files of bench real, or noise?"""
