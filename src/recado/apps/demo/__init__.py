"""The end-to-end demo: a broker, a market on a feed, bars by Spark, and a recorder that is killed with kill -9.

environment.py       the broker with its archives, and the recorder process
market_publisher.py  publishes a morning at full speed, then live ticks at a pace
monitor.py           samples the progress, and shows it in a terminal or as lines
scenario.py          the sequence of events, and the checks of the result
charts.py            the charts of the report
report.py            the report page
"""
