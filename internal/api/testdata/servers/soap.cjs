// A list of customers behind the npm package soap. In version 1.1 it wants a UsernameToken with a digest, in version 1.2
// one with the password as a text.
const http = require("http");
const soap = require("soap");

const wsdl = (version) => `<?xml version="1.0"?>
<definitions xmlns="http://schemas.xmlsoap.org/wsdl/" xmlns:soap="http://schemas.xmlsoap.org/wsdl/${version === "1.2" ? "soap12" : "soap"}/"
  xmlns:xs="http://www.w3.org/2001/XMLSchema" xmlns:t="urn:lists" targetNamespace="urn:lists" name="Lists">
  <types><xs:schema targetNamespace="urn:lists" elementFormDefault="qualified">
    <xs:element name="add"><xs:complexType><xs:sequence>
      <xs:element name="list" type="xs:string"/>
      <xs:element name="record" maxOccurs="unbounded"><xs:complexType><xs:sequence>
        <xs:element name="number" type="xs:string"/><xs:element name="name" type="xs:string" minOccurs="0"/>
      </xs:sequence></xs:complexType></xs:element>
    </xs:sequence></xs:complexType></xs:element>
    <xs:element name="addResponse"><xs:complexType><xs:sequence>
      <xs:element name="id" type="xs:string"/><xs:element name="got" type="xs:string" maxOccurs="unbounded"/>
    </xs:sequence></xs:complexType></xs:element>
  </xs:schema></types>
  <message name="addIn"><part name="parameters" element="t:add"/></message>
  <message name="addOut"><part name="parameters" element="t:addResponse"/></message>
  <portType name="Lists"><operation name="add"><input message="t:addIn"/><output message="t:addOut"/></operation></portType>
  <binding name="Lists" type="t:Lists"><soap:binding style="document" transport="http://schemas.xmlsoap.org/soap/http"/>
    <operation name="add"><soap:operation soapAction="urn:lists/add"/><input><soap:body use="literal"/></input><output><soap:body use="literal"/></output></operation>
  </binding>
  <service name="Lists"><port name="Lists" binding="t:Lists"><soap:address location="http://localhost/"/></port></service>
</definitions>`;

const fault = (version, code, text, detail) => {
  const e = new Error(text);
  e.Fault = version === "1.2"
    ? { Code: { Value: `soap:${code}` }, Reason: { Text: text }, Detail: detail }
    : { faultcode: `soap:${code}`, faultstring: text, detail };
  return e;
};
const codes = { "1.1": ["Client", "Server"], "1.2": ["Sender", "Receiver"] };

const service = (version) => ({ Lists: { Lists: {
  add: ({ list, record }) => {
    const records = [].concat(record);
    switch (list) {
      case "gone": throw fault(version, codes[version][1], "No such list", { "t:ListNotFoundFault": { "t:message": "gone" } });
      case "bad": throw fault(version, codes[version][0], "Bad list");
      case "broken": throw fault(version, codes[version][1], "Out of order");
    }
    return { id: `${list}-${records.length}`, got: records.map((r) => `${r.number}:${r.name}`) };
  },
} } });

const server = http.createServer((req, res) => { res.statusCode = 404; res.end(); });
server.listen(0, "127.0.0.1", () => {
  const secured = soap.listen(server, "/v11", service("1.1"), wsdl("1.1"));
  const seen = new Set();
  secured.authenticate = (security) => {
    const { Username, Password, Nonce, Created } = security.UsernameToken;
    const nonce = Nonce.$value || Nonce;
    const age = Math.abs(Date.now() - Date.parse(Created));
    const digest = soap.passwordDigest(nonce, Created, "s3cret & <word>");
    const fresh = !seen.has(nonce) && age < 300000;
    seen.add(nonce);
    return Username === "ann" && fresh && (Password.$value || Password) === digest;
  };
  const open = soap.listen(server, { path: "/v12", services: service("1.2"), xml: wsdl("1.2"), forceSoap12Headers: true });
  open.authenticate = (security) => {
    const { Username, Password } = security.UsernameToken;
    return Username === "ann" && Password.attributes.Type.endsWith("#PasswordText") && Password.$value === "s3cret & <word>";
  };
  console.log(server.address().port);
});
