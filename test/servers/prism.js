// Prism in front of vendors' OpenAPI documents, of which it gets the operations that are asked for. It passes requests that
// a document allows on to an upstream, or answers them by itself where there is none, and answers all others with what is
// wrong with them. Arguments: the documents' files, by commas, the upstream's address or "", and operations, each with the
// whole path and whatever names in it: "POST /v2/people/{id}"; none takes all.
const { getHttpOperationsFromSpec } = require("@stoplight/prism-http")
const { createServer } = require("@stoplight/prism-http-server")
const { createLogger } = require("@stoplight/prism-core")
const { parse } = require("@stoplight/yaml")
const Ajv = require("ajv").default

const [files, upstream, ...wanted] = process.argv.slice(1)
const nameless = (operation) => operation.replace(/\{[^}]*\}/g, "{}")
const kept = new Set(wanted.map(nameless))
const methods = ["get", "put", "post", "delete", "patch", "head", "options"]

// Prism matches paths alone, so that of the server is put before them.
function baseOf(document, item, operation) {
  if (document.basePath) return document.basePath.replace(/\/$/, "")
  const address = (operation.servers || item.servers || document.servers || [])[0]?.url || "/"
  return new URL(address.replace(/[{}]/g, ""), "http://document").pathname.replace(/\/$/, "")
}

// Slack's document asks for the token in parameters of that name, too; its pages ask for it in Authorization alone.
const mend = (parameter) => (parameter.name === "token" ? { ...parameter, required: false } : parameter)

// Prism passes everything where a schema cannot be compiled; here it then passes nothing.
const { compile } = Ajv.prototype
Ajv.prototype.compile = function (schema) {
  try {
    return compile.call(this, schema)
  } catch (problem) {
    const refuse = () => false
    refuse.errors = [{ instancePath: "", keyword: "schema", params: {}, message: "cannot be checked: " + problem.message }]
    return refuse
  }
}

// Prism takes a field of a form that is an array for one only where its style is said, though there is one by default.
function sayStyle(document, body) {
  if (body?.$ref) body = follow(document, body.$ref)
  const form = body?.content?.["application/x-www-form-urlencoded"]
  if (!form?.schema) return
  const schema = form.schema.$ref ? follow(document, form.schema.$ref) : form.schema
  for (const [name, field] of Object.entries(schema.properties || {}))
    if (field.type === "array") form.encoding = { [name]: { style: "form", explode: true }, ...form.encoding }
}

const follow = (document, ref) =>
  ref.split("/").slice(1).reduce((at, step) => at?.[step.replace(/~1/g, "/").replace(/~0/g, "~")], document)

// A connection that waits while Prism reads another request's schema is not closed.
const { Server } = require("http")
const { listen } = Server.prototype
Server.prototype.listen = function (...args) {
  this.keepAliveTimeout = 0
  return listen.apply(this, args)
}

// What Prism answers with: the first references are followed, and what they lead to at last is left open. In some documents
// the schemas of answers refer to all others, which Prism writes out for each operation.
function shallow(document, node, references = 2) {
  if (node === null || typeof node !== "object") return node
  if (Array.isArray(node)) return node.map((part) => shallow(document, part, references))
  if (typeof node.$ref === "string") return references ? shallow(document, follow(document, node.$ref), references - 1) : {}
  return Object.fromEntries(Object.entries(node).map(([name, part]) => [name, shallow(document, part, references)]))
}

// The schemas of answers are left out where an upstream gives them, and then what only they need.
function trim(document) {
  const paths = {}
  for (const [path, item] of Object.entries(document.paths)) {
    for (const method of methods) {
      if (!item[method]) continue
      const whole = baseOf(document, item, item[method]) + path
      if (kept.size && !kept.has(nameless(method.toUpperCase() + " " + whole))) continue
      sayStyle(document, item[method].requestBody)
      const responses = {}
      for (const [status, answer] of Object.entries(item[method].responses))
        responses[status] = upstream ? { description: "as in the document" } : shallow(document, answer)
      const parameters = (item[method].parameters || []).map(mend)
      paths[whole] ??= { parameters: (item.parameters || []).map(mend) }
      paths[whole][method] = { ...item[method], servers: undefined, responses, parameters }
    }
  }
  document.paths = paths
  if (document.basePath) document.basePath = "/"
  else document.servers = [{ url: "/" }]
  for (const part of ["responses", "headers", "examples", "callbacks", "links", "pathItems"]) delete (document.components || document)[part]
  const needed = new Set()
  const mark = (node) => {
    if (node === null || typeof node !== "object") return
    if (!node.nullable || !node.type) delete node.nullable // says nothing then, and cannot be compiled
    const ref = node.$ref
    if (typeof ref === "string" && !needed.has(ref)) {
      needed.add(ref)
      mark(follow(document, ref))
    }
    Object.values(node).forEach(mark)
  }
  mark(paths)
  for (const [part, root] of document.components
    ? Object.entries(document.components).map(([name, of]) => [of, "#/components/" + name + "/"])
    : [[document.definitions || {}, "#/definitions/"]])
    if (!root.endsWith("/securitySchemes/"))
      for (const name of Object.keys(part)) if (![...needed].some((ref) => (ref + "/").startsWith(root + name + "/"))) delete part[name]
  return document
}

const read = (file) => getHttpOperationsFromSpec(trim(parse(require("fs").readFileSync(file, "utf8"))))

Promise.all(files.split(",").map(read)).then(async (operations) => {
  const config = { checkSecurity: true, validateRequest: true, validateResponse: false, errors: true, mock: { dynamic: false } }
  const server = createServer(operations.flat(), {
    cors: false,
    components: { logger: createLogger("prism", { level: "silent" }) },
    config: upstream ? { ...config, isProxy: true, upstream: new URL(upstream) } : { ...config, isProxy: false },
  })
  console.log((await server.listen(0, "127.0.0.1")).replace("http://", ""))
})
