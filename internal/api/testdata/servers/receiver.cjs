// Tells what others' parsers make of a request: formidable of multipart bodies, qs of forms, xmldom of XML.
const http = require("http");
const formidable = require("formidable");
const qs = require("qs");
const { DOMParser } = require("@xmldom/xmldom");
const fs = require("fs");

const tree = (node) => ({
  name: node.nodeName,
  namespace: node.namespaceURI,
  attributes: Object.fromEntries(Array.from(node.attributes || []).map((a) => [a.name, a.value])),
  content: Array.from(node.childNodes).map((c) => (c.nodeType === 1 ? tree(c) : c.nodeValue)),
});

const read = async (req) => {
  const type = req.headers["content-type"] || "";
  if (type.startsWith("multipart/")) {
    const [fields, files] = await formidable.formidable({}).parse(req);
    const parts = {};
    for (const [name, list] of Object.entries(files)) {
      parts[name] = list.map((f) => ({ filename: f.originalFilename, type: f.mimetype, base64: fs.readFileSync(f.filepath).toString("base64") }));
    }
    return { fields, files: parts };
  }
  const chunks = [];
  for await (const chunk of req) chunks.push(chunk);
  const body = Buffer.concat(chunks);
  if (type.startsWith("application/x-www-form-urlencoded")) return qs.parse(body.toString());
  if (type.includes("xml")) return tree(new DOMParser().parseFromString(body.toString(), "text/xml").documentElement);
  return { type, base64: body.toString("base64") };
};

const server = http.createServer(async (req, res) => {
  try {
    res.setHeader("Content-Type", "application/json");
    res.end(JSON.stringify(await read(req)));
  } catch (e) {
    res.statusCode = 400;
    res.end(JSON.stringify({ message: String(e) }));
  }
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
