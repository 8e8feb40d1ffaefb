// Writes the schemas of Terraform's resources as JSON: what the generated classes of the npm
// package @cdktf/provider-google know of each argument's name, type and nesting, and whether
// it is required.
//
//   node schemas.mjs FOLDER TYPE… > schema.json
//
// FOLDER has the package. A TYPE is "google_pubsub_topic", or "data.google_project" for a
// data source. infra/gcp/schemas reads the output. A type that the package lacks fails.
import { existsSync, readFileSync } from "node:fs";

const [folder, ...types] = process.argv.slice(2);

// What the classes call the types of arguments, and of computed attributes.
const storageTypes = {
  string: "string", number: "number", boolean: "bool",
  stringMap: ["map", "string"], numberMap: ["map", "number"], booleanMap: ["map", "bool"],
  stringList: ["list", "string"], numberList: ["list", "number"], booleanList: ["list", "bool"],
};
const getterTypes = {
  String: "string", Number: "number", Boolean: "bool", List: ["list", "string"], NumberList: ["list", "number"],
  StringMap: ["map", "string"], NumberMap: ["map", "number"], BooleanMap: ["map", "bool"],
};

const argument = /^ +(\w+): \{\s+value: ([\s\S]*?),\s+isBlock: (true|false),\s+type: "(\w+)",\s+storageClassType: "(\w+)",\s+\}/gm;

// Returns the schema of one type.
function schemaOf(type) {
  const data = type.startsWith("data.");
  const short = type.replace(/^data\./, "").replace(/^google_/, "").replaceAll("_", "-");
  const from = `${folder}/lib/${data ? "data-google-" : ""}${short}`;
  if (!existsSync(`${from}/index.js`)) {
    throw new Error(`${type} is no type of the provider google`);
  }
  const js = readFileSync(`${from}/index.js`, "utf8"), declarations = readFileSync(`${from}/index.d.ts`, "utf8");

  const required = {}; // the name of an interface -> its required members
  for (const [, name, members] of declarations.matchAll(/export interface (\w+)[^{]*\{([\s\S]*?)\n\}/g)) {
    required[name] = new Set([...members.matchAll(/readonly (\w+): /g)].map((m) => m[1]));
  }
  const nested = {}; // the name of a block's function -> its text
  for (const [, name, text] of js.matchAll(/function (\w+)ToHclTerraform\(struct\) \{([\s\S]*?)\n\}/g)) {
    nested[name] = text;
  }

  function blockOf(text, owner) {
    const block = { attributes: {}, blocks: {} };
    for (const [, name, value, isBlock, kind, storage] of text.matchAll(argument)) {
      const member = (value.match(/this\._(\w+)/) || value.match(/struct\.(\w+)/) || [])[1];
      const need = required[owner]?.has(member) ?? false;
      if (isBlock === "false" && storageTypes[storage]) {
        let t = storageTypes[storage];
        if (Array.isArray(t) && kind === "set") t = ["set", t[1]];
        block.attributes[name] = { type: t, required: need, optional: !need };
        continue;
      }
      const inner = (value.match(/(\w+)ToHclTerraform/) || [])[1];
      if (isBlock === "false" && !nested[inner]) {
        block.attributes[name] = { type: "dynamic", required: need, optional: !need };
        continue;
      }
      const single = kind === "struct", many = value.includes("listMapper");
      block.blocks[name] = {
        mode: single ? "single" : kind === "set" ? "set" : "list",
        min: need ? 1 : 0,
        max: single || many ? 0 : 1,
        block: blockOf(nested[inner] ?? "", inner[0].toUpperCase() + inner.slice(1)),
      };
    }
    return block;
  }

  const config = Object.keys(required).find((name) => name.endsWith("Config") &&
    new RegExp(`export interface ${name} extends cdktf.TerraformMetaArguments`).test(declarations));
  const schema = blockOf(js.match(/synthesizeHclAttributes\(\) \{([\s\S]*?)\n    \}/)?.[1] ?? "", config);

  // What a getter returns and no argument sets is computed.
  const main = js.match(/class (\w+) extends cdktf\.Terraform(Resource|DataSource)[\s\S]*$/)[0];
  const isArgument = (name) => schema.attributes[name] || schema.blocks[name];
  for (const [, kind, name] of main.matchAll(/this\.get(\w+)Attribute\('(\w+)'\)/g)) {
    if (getterTypes[kind] && !isArgument(name)) schema.attributes[name] = { type: getterTypes[kind], computed: true };
  }
  for (const [, name] of main.matchAll(/this\._\w+ = new \w+\(this, "(\w+)"/g)) {
    if (!isArgument(name)) schema.attributes[name] = { type: "dynamic", computed: true };
  }
  if (schema.attributes.id) schema.attributes.id = { type: "string", optional: true, computed: true };
  return schema;
}

const out = { resources: {}, data_sources: {} };
for (const type of types) {
  const kind = type.startsWith("data.") ? "data_sources" : "resources";
  out[kind][type.replace(/^data\./, "")] = schemaOf(type);
}
process.stdout.write(JSON.stringify(out, null, 1) + "\n");
