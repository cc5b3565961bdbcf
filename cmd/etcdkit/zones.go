package main

import _ "time/tzdata" // fire times in a zone also where the system has no zones, as in an image from scratch
