package apidoc_test

import (
	"slices"
	"testing"

	"flowlane"
	"flowlane/internal/cli/apidoc"
)

// TestRead reads the document itself: a path's own parameters, references, bodies, pages and choices.
func TestRead(t *testing.T) {
	t.Parallel()
	doc, err := apidoc.Read(flowlane.OpenAPI)
	if err != nil {
		t.Fatal(err)
	}
	o := doc.Operation("retryBatch")
	if o == nil || o.Method != "POST" || o.Path != "/flows/batches/{batch_id}/retry" || o.BodyRequired ||
		o.Params[0].Name != "batch_id" || o.Params[0].In != "path" {
		t.Fatalf("retryBatch: %+v", o)
	}
	fields := doc.Fields(o.Body)
	if len(fields) != 2 || fields[0].Name != "job_statuses" || doc.Kind(fields[0].Schema) != apidoc.List ||
		!slices.Contains(doc.Choices(fields[0].Schema), "unprocessed") {
		t.Errorf("its body: %+v", fields)
	}
	kinds := map[string]apidoc.Kind{}
	for _, f := range doc.Fields(doc.Operation("replaceSchedule").Body) {
		kinds[f.Name] = doc.Kind(f.Schema)
	}
	want := map[string]apidoc.Kind{
		"definition_id": apidoc.Text, "catch_up_seconds": apidoc.Number, "enabled": apidoc.Boolean,
		"input_data": apidoc.JSON,
	}
	for name, kind := range want {
		if kinds[name] != kind {
			t.Errorf("%s is of kind %d, want %d", name, kinds[name], kind)
		}
	}
	if _, ok := kinds["next_fire_at"]; ok {
		t.Error("a field that is not taken is among those to send")
	}
	if items := doc.Items(doc.Operation("listBatches")); items == nil || items.Properties[0].Name != "id" {
		t.Errorf("items of listBatches: %+v", items)
	}
	if doc.Items(doc.Operation("getBatch")) != nil {
		t.Error("a batch is no list")
	}
}

func TestRead_NoDocument(t *testing.T) {
	t.Parallel()
	if _, err := apidoc.Read([]byte("paths: [1")); err == nil {
		t.Error("no YAML is read")
	}
}
