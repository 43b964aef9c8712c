// For mongosh on mongo1: makes the three nodes a replica set, unless they are one, and waits until it takes writes.
const members = ["mongo1:27017", "mongo2:27017", "mongo3:27017"];

if (!db.hello().setName) {
  rs.initiate({ _id: "rs0", members: members.map((host, _id) => ({ _id, host })) });
}

// Any of the three may be primary, so it is asked whether there is one, not whether it is this one.
const deadline = Date.now() + 60_000;
while (!db.hello().primary) {
  if (Date.now() > deadline) {
    throw new Error("the replica set rs0 has no primary after 60 s");
  }
  sleep(200);
}
print(`rs0 is ready, its primary is ${db.hello().primary}`);
