package app

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"flowlane/gen/db"
	"flowlane/internal/api"
	"flowlane/internal/batch"
	"flowlane/internal/batch/query"
	"flowlane/internal/blob"
	"flowlane/internal/definition"
	"flowlane/internal/dispatch"
	"flowlane/internal/orgexport"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/recordset"
	"flowlane/internal/run"
	"flowlane/internal/trigger/webhook"
)

// exportCache is how many bytes of the store an export keeps: it reads each body once, from its begin to its end.
const exportCache = 4 << 20

// Exports returns what exports organizations, for a command of this version. blobURL is as in Config.
func Exports(ctx context.Context, pool *pgxpool.Pool, blobURL, version string) (*orgexport.Service, error) {
	cat, err := catalog.Load(catalog.Options{})
	if err != nil {
		return nil, err //nolint:wrapcheck // says everything
	}
	var blobs *blob.Cache
	if blobURL != "" {
		store, err := blob.Open(blobURL)
		if err != nil {
			return nil, err //nolint:wrapcheck // says everything
		}
		blobs = blob.NewCache(store, exportCache, nil)
	}
	if err := recordset.CheckBlobs(ctx, pool, blobs); err != nil {
		return nil, err //nolint:wrapcheck // says everything
	}
	runs := run.New(pool, definition.NewPlans(cat, 0), nil, nil, nil).ReadFrom(blobs) // it only reads
	return &orgexport.Service{
		Pool: pool, Version: version, Now: time.Now, Records: recordset.Pages{Blobs: blobs}.Each,
		Results: func(ctx context.Context, orgID, batchID uuid.UUID) (io.Reader, error) {
			return runs.Export(ctx, orgID, query.RecordFilter{BatchID: &batchID}, api.ResultLine())
		},
		Openers: map[string]orgexport.Opener{
			"batch_count.fragment":  openFragment,
			"exchange.detail":       openDetail,
			"fragment.body":         openFragment,
			"webhook_delivery.body": openDelivery,
		},
	}, nil
}

// openFragment writes what attempts made of the records of a slice.
func openFragment(w io.Writer, _, packed []byte) error { return batch.ShowFragment(w, packed) }

// openDetail writes what a call sent and was answered, masked as it is stored.
func openDetail(w io.Writer, _, packed []byte) error {
	text, err := dispatch.DetailText(packed)
	if err != nil {
		return fmt.Errorf("the detail of a call: %w", err)
	}
	if text == nil {
		text = []byte("null")
	}
	_, err = w.Write(text)
	return err //nolint:wrapcheck // names the file
}

// openDelivery writes the body of a delivery as text, or as {"base64": ...} where it is none.
func openDelivery(w io.Writer, row, packed []byte) error {
	var of struct {
		ID              uuid.UUID `json:"id"`
		Packed          bool      `json:"packed"`
		SizeBytes       int32     `json:"size_bytes"`
		ContentEncoding *string   `json:"content_encoding"`
	}
	if err := json.Unmarshal(row, &of); err != nil {
		return fmt.Errorf("a delivery: %w", err)
	}
	body, isText, err := webhook.StoredText(&db.FlowWebhookDelivery{
		ID: of.ID, Packed: of.Packed, SizeBytes: of.SizeBytes, ContentEncoding: of.ContentEncoding, Body: packed,
	})
	if err != nil {
		return err //nolint:wrapcheck // says everything
	}
	var value any = string(body)
	if !isText {
		value = map[string]string{"base64": base64.StdEncoding.EncodeToString(body)}
	}
	text, err := json.Marshal(value)
	if err == nil {
		_, err = w.Write(text)
	}
	return err //nolint:wrapcheck // names the file
}
