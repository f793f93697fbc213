package api_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
)

// soapPlatform is a service in version VERSION of SOAP.
const soapPlatform = `
id: lists
name: Lists
description: Lists of customers.
status: active
services:
  - id: lists__soap
    name: SOAP
    description: Adds to lists.
    kind: api
    protocol: SOAP
    AUTH
    base_url: http://lists.example/PATH
    status: active
    soap: {version: "VERSION", namespaces: {t: "urn:lists"}SECURITY}
    actions:
      - id: lists__soap__add
        name: Add
        description: Adds a record.
        default_lane: interactive
        max_records_per_request: 1
        outcome_check: none
        params_schema: {type: object, required: [list], properties: {list: {type: string}, number: {}, name: {}}}
        call:
          body:
            "t:add":
              "t:list": "{{ params.list }}"
              "t:record": [{"t:number": "{{ params.number }}", "t:name": "{{ params.name }}"}, {"t:number": 2}]
          soap: {action: "urn:lists/add", header: {"t:trace": "{{ params.number }}"}}
          answer:
            success: [200]
            output: [id, got]
            reference: id
            cases:
              - {when: '{{ answer.fault.name == "ListNotFoundFault" }}', is: refused}`

// TestSOAP: calls of a server of others, in both versions, with the password as a digest in one and as a text in the
// other; faults are told apart by the catalog, else by what SOAP says of their codes.
func TestSOAP(t *testing.T) {
	t.Parallel()
	host := foreignServer(t, "soap.cjs")
	const auth = "auth_method: basic_auth\n    requires_connection: true\n" +
		"    credential_fields: [{name: username, label: User, type: string, required: true, secret: false}, {name: " +
		"password, label: Password, type: password, required: true, secret: true}]"
	for version, c := range map[string]struct{ path, security string }{"1.1": {"v11", "username_digest"},
		"1.2": {"v12", "username_text"}} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			text := strings.NewReplacer("VERSION", version, "AUTH", auth, "PATH", c.path, "SECURITY", ", security: "+
				c.security).Replace(soapPlatform)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "lists.yaml"), []byte(text), 0o600))
			s := serveStack(t, true, func(o *app.Config) {
				o.CatalogDir, o.BaseURLs["lists"] = dir, "http://"+host+"/"+c.path
			})
			s.credential = s.Do(http.MethodPost, "/credentials?verify=false", object{"name": "lists",
				"platform_id": "lists", "auth_method": "basic_auth",
				"credentials": object{"username": "ann", "password": "s3cret & <word>"}}).Want(
				http.StatusCreated).JSON()["id"].(string)
			flow := s.define(`[{"id":"s","tasks":[{"id":"t","action_id":"lists__soap__add","credential_id":"CRED","retry":{"max_attempts":1},
				"params":{"list":"{{ input.list }}","number":"{{ input.n }}","name":"{{ input.name }}"}}]}]`)
			batch := s.trigger(flow,
				`{"records":[{"list":"new","n":1,"name":"<Ann & Co> é"},{"list":"gone","n":1},{"list":"bad","n":1},{"list":"broken","n":1}]}`)
			s.until(batch, func(b map[string]any) bool {
				n := counted(b)
				return n["completed"] == 1 && n["failed"] == 2 && n["unresolved"] == 1
			})
			assert.Equal(t, map[string]any{"id": "new-2", "got": []any{"1:<Ann & Co> é", "2:undefined"}},
				s.get("/flows/jobs/" + batch + ".0")["output"])
			receiver := map[string]string{"1.1": "Server", "1.2": "Receiver"}[version]
			for position, want := range [][3]any{1: {"provider_refused", "ListNotFoundFault", "No such list"},
				2: {"provider_refused", map[string]string{"1.1": "Client", "1.2": "Sender"}[version], "Bad list"},
				3: {"outcome_unknown", receiver, "Out of order"}} {
				if want[0] == nil {
					continue
				}
				e := s.get(fmt.Sprintf("/flows/jobs/%s.%d", batch, position))["error"].(map[string]any)
				assert.Equal(t, want, [3]any{e["code"], e["provider_code"], e["provider_message"]}, "%d %v", position,
					e)
			}
			dry := string(s.Do(http.MethodPost, "/flows/definitions/"+flow+"/dry-run",
				`{"input_data":{"list":"new","n":1,"name":"x"}}`).Want(http.StatusOK).Body)
			assert.Contains(t, dry, `<soap:Body><t:add>`)
			assert.NotContains(t, dry, "s3cret")
			assert.Contains(t, dry, "CREDENTIAL")
		})
	}
}

const graphQLPlatform = `
id: shop
name: Shop
description: Orders.
status: active
services:
  - id: shop__api
    name: API
    description: Orders by GraphQL.
    kind: api
    protocol: GraphQL
    auth_method: none
    base_url: http://shop.example/graphql
    status: active
    actions:
      - &action
        id: shop__api__create
        name: Create
        description: Creates an order.
        default_lane: interactive
        max_records_per_request: 1
        outcome_check: none
        params_schema: {type: object, required: [sku], properties: {sku: {}, quantity: {}}}
        call:
          graphql:
            query: |
              mutation Create($input: OrderInput!) { createOrder(input: $input) { id total } }
            variables: {input: {sku: "{{ params.sku }}", quantity: "{{ params.quantity }}"}}
          answer:
            output: [data.createOrder.id, extensions.cost.requestedQueryCost]
            cases:
              - {when: '{{ answer.body.errors[0].extensions.code == "TAKEN" }}', is: refused}
      - <<: *action
        id: shop__api__read
        name: Read
        outcome_check: safe
        call:
          graphql:
            query: "query ($id: ID!) { order(id: $id) { id total } }"
            variables: {id: "{{ params.sku }}"}
          answer:
            output: [data.order]
            cases:
              - {when: '{{ answer.body.data.order != null }}', is: success}`

// TestGraphQL: calls of a server of others. An operation that was not begun is refused, one of a mutation whose fields
// failed is unclear, that of a query is refused; partial data is what the catalog says it is.
func TestGraphQL(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "shop.yaml"), []byte(graphQLPlatform), 0o600))
	host := foreignServer(t, "graphql.cjs")
	s := serveStack(t, true, func(c *app.Config) { c.CatalogDir, c.BaseURLs["shop"] = dir, "http://"+host+"/graphql" })
	run := func(action, records string) string {
		return s.trigger(s.define(`[{"id":"s","tasks":[{"id":"t","action_id":"shop__api__`+action+
			`","retry":{"max_attempts":1},
			"params":{"sku":"{{ input.sku }}","quantity":"{{ input.n }}"}}]}]`), `{"records":[`+records+`]}`)
	}
	failure := func(batch string, position int) [3]any {
		e, _ := s.get(fmt.Sprintf("/flows/jobs/%s.%d", batch, position))["error"].(map[string]any)
		return [3]any{e["code"], e["provider_code"], e["provider_message"]}
	}
	batch := run("create", `{"sku":"a \"b\"","n":3},{"sku":"taken","n":1},{"sku":"lost","n":1},{"sku":"a","n":"many"}`)
	s.until(batch, func(b map[string]any) bool { return counted(b)["unresolved"] == 1 && counted(b)["failed"] == 2 })
	assert.Equal(t, map[string]any{"id": `o-1-a "b"`, "requestedQueryCost": 7.0}, s.get("/flows/jobs/" + batch +
		".0")["output"])
	assert.Equal(t, [3]any{"provider_refused", "TAKEN", "is taken"}, failure(batch, 1))
	assert.Equal(t, [3]any{"outcome_unknown", "INTERNAL", "may be there"}, failure(batch, 2))
	assert.Equal(t, "provider_refused", failure(batch, 3)[0])
	assert.Contains(t, failure(batch, 3)[2], "Int cannot represent non-integer value")

	batch = run("read", `{"sku":"o-1"},{"sku":"half"},{"sku":"secret"}`)
	assert.Equal(t, map[string]int{"completed": 2, "failed": 1}, counted(s.await(batch)))
	assert.Equal(t, map[string]any{"order": map[string]any{"id": "half", "total": nil}}, s.get("/flows/jobs/" + batch +
		".1")["output"])
	assert.Equal(t, [3]any{"provider_refused", "FORBIDDEN", "not yours"}, failure(batch, 2))
}
