"""A server of S3's protocol in this process (moto), with an empty bucket `bucket`.

Prints its port. Answers each line on standard input with the number of uploads in parts that have neither become objects
nor been aborted. Ends with standard input, and so with whoever started it.
"""

import logging
import os
import sys

# The tests have parts of a few bytes; read when moto is imported.
os.environ["S3_UPLOAD_PART_MIN_SIZE"] = "1"

import boto3
from moto.server import ThreadedMotoServer

# One line for each request otherwise.
logging.getLogger("werkzeug").setLevel(logging.ERROR)

server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
_, port = server.get_host_and_port()
client = boto3.client(
    "s3",
    endpoint_url=f"http://127.0.0.1:{port}",
    region_name="us-east-1",
    aws_access_key_id="key",
    aws_secret_access_key="secret",
)
client.create_bucket(Bucket="bucket")
print(port, flush=True)
for _ in sys.stdin:
    uploads = client.list_multipart_uploads(Bucket="bucket").get("Uploads", [])
    print(len(uploads), flush=True)
