# Makes refunds with stripe-python, one for each line of input, and prints the user's error
# code as a line of JSON, "" for success.
#   python3 refund.py BASE_URL
import json
import sys

import stripe

stripe.api_key = "sk_test_1"
stripe.api_base = sys.argv[1]
stripe.enable_telemetry = False

for _ in sys.stdin:
    try:
        refund = stripe.Refund.create(charge="ch_1")
        seen = "" if refund.id == "ch_1" else "no refund: " + json.dumps(refund)
    except stripe.error.StripeError as e:
        code = e.error.code if e.error else e.code
        seen = " ".join(str(v) for v in (type(e).__name__, e.http_status, code, e.user_message) if v)
    print(json.dumps(seen), flush=True)
