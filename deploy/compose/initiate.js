// For mongosh on mongo1: initiates the replica set of the three nodes if needed, and waits until it has a primary.
const members = ["mongo1:27017", "mongo2:27017", "mongo3:27017"];

if (!db.hello().setName) {
  rs.initiate({ _id: "rs0", members: members.map((host, _id) => ({ _id, host })) });
}

// Any of the three nodes may become primary, so this checks for any primary, not for this node.
const deadline = Date.now() + 60_000;
while (!db.hello().primary) {
  if (Date.now() > deadline) {
    throw new Error("the replica set rs0 has no primary after 60 s");
  }
  sleep(200);
}
print(`rs0 is ready, its primary is ${db.hello().primary}`);
