"""`make demo`: a real agent process sends real mail over SMTP and is killed; without C4A a mail goes out twice, with it once.

Run from the source tree with the requirements of the tests: `python -m c4a.demo`. `aiosmtpd` counts the mails.
"""
