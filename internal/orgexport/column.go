package orgexport

// leftOut are the columns that no export has, by table and name, each with the reason, which the manifest gives too.
// Columns of bytes that are neither here nor in elsewhere, digests or a service's Openers are left out as well: what a
// new one holds, nobody has said.
var leftOut = map[string]string{
	"api_key.hash": "opens the organization for who can guess at it: the keyed hash of a key",
	"session.hash": "opens the organization for who can guess at it: " +
		"the keyed hash of a session",
	"org_keyset.wrapped":                  "the keys of the organization's secrets, encrypted",
	"secret.ciphertext":                   "a secret, encrypted",
	"move_name.name":                      "opens nothing: the keyed hash of a key, and ids",
	"credential_authorization.state_hash": "the hash of what lets a person back in who authorizes a credential",
	"idempotency_key.key_hash":            "a keyed hash, of use to this installation alone",
	"idempotency_key.body_hash":           "a keyed hash, of use to this installation alone",
	"idempotency_key.answer": "an answer that is kept to be given again; " +
		"what it tells of is in the other tables",
}

// elsewhere are columns whose text is in files of its own.
var elsewhere = map[string]string{
	"batch.page": "records/",
}

// digests are columns of bytes that hold nothing but digests of what is exported, or ids. They are written in base64.
var digests = map[string]bool{
	"batch.trace":         true,
	"call.key_sums":       true,
	"record_chunk.digest": true,
	"wait.match_key":      true,
}

// apart are the tables that have neither org_id nor the id of something that belongs to an organization, and pages,
// whose rows are in records/, each with the reason why it has no file.
var apart = map[string]string{
	"budget":          "the rate at which an account of a provider may be called: of use to this installation alone",
	"clock_offset":    "of the installation",
	"clock_watch":     "of the installation",
	"cell":            "of the installation",
	"domain_limit":    "what a provider allows for an account",
	"due":             "when work is to be done: follows from the other tables",
	"identity":        "of the installation",
	"ledger":          "what was spent of an account of a provider, by all organizations that use it",
	"page":            "in records/",
	"retention_clock": "of the installation",
	"rolling":         "what was spent of an account of a provider, by all organizations that use it",
	"root_key":        "of the installation",
	"schema_version":  "of the installation",
}
