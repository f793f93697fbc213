// A service of SOAP by a vendor's own WSDL, whose path is the argument. The package soap reads the requests and writes the answers; each
// request must first be valid by the schemas of the WSDL, of which libxml2 decides. POST /check checks any envelope so.
const http = require("http")
const fs = require("fs")
const soap = require("soap")
const { validateXML } = require("xmllint-wasm")

const [file, service, port, answers] = process.argv.slice(-4)
const wsdl = fs.readFileSync(file, "utf8").replace(/<xs:import namespace="([^"]*)"[^>]*\/>/g, '<xs:import namespace="$1"/>')
const schemas = wsdl.match(/<xs:schema[\s\S]*?<\/xs:schema>/g)
const namespaceOf = (text) => text.match(/targetNamespace="([^"]*)"/)[1]

// What the vendor imports and its operations for lists do not use: references to attachments.
schemas.push('<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" targetNamespace="http://ws-i.org/profiles/basic/1.1/xsd">' +
  '<xs:simpleType name="swaRef"><xs:restriction base="xs:anyURI"/></xs:simpleType></xs:schema>')
const fileOf = Object.fromEntries(schemas.map((text, i) => [namespaceOf(text), `part${i}.xsd`]))
const located = (text) => text.replace(/<xs:import namespace="([^"]*)"\/>/g,
  (_, name) => fileOf[name] ? `<xs:import namespace="${name}" schemaLocation="${fileOf[name]}"/>` : "")
const preload = schemas.map((text, i) => ({ fileName: `part${i}.xsd`, contents: located(text) }))

// An envelope of SOAP 1.1 with one element of the vendor's namespace, or a fault with one in its detail.
const own = namespaceOf(schemas[0])
const envelope = {
  fileName: "envelope.xsd",
  contents: `<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" xmlns:e="http://schemas.xmlsoap.org/soap/envelope/"
    targetNamespace="http://schemas.xmlsoap.org/soap/envelope/" elementFormDefault="qualified">
  <xs:import namespace="${own}" schemaLocation="part0.xsd"/>
  <xs:element name="Envelope"><xs:complexType><xs:sequence>
    <xs:element name="Header" minOccurs="0"><xs:complexType/></xs:element>
    <xs:element name="Body"><xs:complexType><xs:choice><xs:any namespace="${own}" processContents="strict"/><xs:element ref="e:Fault"/></xs:choice></xs:complexType></xs:element>
  </xs:sequence></xs:complexType></xs:element>
  <xs:element name="Fault"><xs:complexType><xs:sequence>
    <xs:element name="faultcode" type="xs:QName" form="unqualified"/><xs:element name="faultstring" type="xs:string" form="unqualified"/>
    <xs:element name="detail" form="unqualified"><xs:complexType><xs:sequence><xs:any namespace="${own}" processContents="strict"/></xs:sequence></xs:complexType></xs:element>
  </xs:sequence></xs:complexType></xs:element>
</xs:schema>`,
}

async function faultsOf(...texts) {
  const xml = texts.map((contents, i) => ({ fileName: `message${i}.xml`, contents }))
  const result = await validateXML({ xml, schema: [envelope], preload })
  return result.valid ? "" : result.errors.map((e) => e.rawMessage).join("\n") || "not valid"
}

const canned = JSON.parse(answers)
const operations = {}
for (const [, name] of wsdl.matchAll(/<wsdl:operation name="(\w+)"/g)) {
  operations[name] = () => {
    const answer = canned[name] ?? {}
    if (answer.fault) {
      throw { Fault: { faultcode: "soap:Server", faultstring: answer.fault, detail: { [`tns:${answer.fault}`]: { message: "told so" } }, statusCode: 500 } }
    }
    return answer
  }
}

const read = (request) => new Promise((done) => {
  let text = ""
  request.on("data", (part) => { text += part })
  request.on("end", () => done(text))
})
// The service of the package listens for itself; in front of it everything is checked.
const behind = http.createServer((_, response) => response.end())
const front = http.createServer(async (request, response) => {
  const text = await read(request)
  const faults = request.url === "/check" ? await faultsOf(...JSON.parse(text)) : await faultsOf(text)
  if (faults || request.url === "/check") {
    response.writeHead(faults ? 400 : 200, { "content-type": "text/plain" })
    response.end(faults)
    return
  }
  const onward = http.request({ port: behind.address().port, path: request.url, method: request.method, headers: request.headers }, (answer) => {
    response.writeHead(answer.statusCode, answer.headers)
    answer.pipe(response)
  })
  onward.end(text)
})
behind.listen(0, "127.0.0.1", () => {
  soap.listen(behind, {
    path: "/ws", xml: wsdl, services: { [service]: { [port]: operations } },
    callback: () => front.listen(0, "127.0.0.1", () => console.log(front.address().port)),
  })
})
