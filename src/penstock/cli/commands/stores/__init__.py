"""Commands that inspect, verify and maintain the stores of one room each."""
