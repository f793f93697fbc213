package dispatch_test

import (
	"testing"

	"flowlane/internal/batch"
	"flowlane/internal/dispatch"
	"flowlane/internal/platform/provider/dialersim"
)

const uploadFlow = `[{"id":"send","tasks":[{"id":"up","action_id":"dialer__api__upload","credential_id":"CRED",
	"params":{"list":"demo","key_field":"id","row":"{{ input }}"}}]}]`

func TestBulkUpload(t *testing.T) {
	t.Parallel()
	b := setup(t, dispatch.Options{})
	id := b.start(b.define(uploadFlow), 1234, plainRow)
	status, counts := b.await(id)
	if status != batch.BatchCompleted || counts.Accepted != 1234 {
		t.Fatalf("batch ended %s with %+v", status, counts)
	}
	b.once("demo", dialersim.KindUpload, 1234)
}
