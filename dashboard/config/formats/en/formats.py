"""How the administration writes dates; pages say times by themselves (`templatetags/trainyard.py`)."""

DATE_FORMAT = "Y-m-d"
TIME_FORMAT = "H:i"
DATETIME_FORMAT = "Y-m-d H:i"
