package servers

import "testing"

// s3 is an object store with one bucket. It takes signatures of version 4 as they are.
const s3 = `
const S3rver = require("s3rver")
const directory = require("fs").mkdtempSync(require("path").join(require("os").tmpdir(), "s3-"))
process.on("exit", () => require("fs").rmSync(directory, { recursive: true }))
process.on("SIGTERM", () => process.exit())
new S3rver({ port: 0, address: "127.0.0.1", silent: true, directory, configureBuckets: [{ name: "stock" }] })
  .run((err, { port }) => console.log(err || port))`

// S3 starts an object store with the bucket "stock" for the one key S3Key, which is its own secret, and returns its
// host and port.
func S3(t *testing.T) (host string) {
	t.Helper()
	return "127.0.0.1:" + Start(t, s3)
}

// S3Key is the key of S3.
const S3Key = "S3RVER"
