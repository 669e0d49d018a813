// What Netron finds in a file, as JSON: node netron.mjs FOLDER FILE. FOLDER: the sources of the package `netron`, which are those of its
// viewer, as ES modules; the window that they would draw into is a few functions here.
import fs from 'fs';
import path from 'path';
import { pathToFileURL } from 'url';

const [root, file] = process.argv.slice(2);
const source = (name) => import(pathToFileURL(path.join(root, name)));
const view = await source('view.js');
const node = await source('node.js');
const host = {
    version: '0', type: 'test', environment: () => null, event: () => {}, event_int: () => {}, update: () => {},
    exception: (error, fatal) => { if (fatal) { throw error; } }, require: (id) => source(`${id}.js`),
    async request(name, encoding, base) {
        const at = path.join(base === undefined ? root : base, name);
        if (!fs.existsSync(at)) {
            throw new Error(`The file '${name}' does not exist.`);
        }
        return encoding ? fs.readFileSync(at, encoding) : new node.FileStream(at, 0, fs.statSync(at).size, fs.statSync(at).mtimeMs);
    }
};
const context = {
    identifier: path.basename(file), name: path.basename(file), entries: new Map(),
    stream: new node.FileStream(file, 0, fs.statSync(file).size, fs.statSync(file).mtimeMs),
    request: (name, encoding, base) => host.request(name, encoding, base === undefined ? path.dirname(file) : base),
    require: (id) => host.require(id), error: (error, fatal) => { if (fatal) throw error; }, asset: (name) => host.request(name, 'utf-8')
};
const service = new view.ModelFactoryService(host);
await service.import();
const model = await service.open(context);
const graphs = (model.modules || model.graphs || []).map((g) => ({
    nodes: (g.nodes || []).map((n) => n.type && n.type.name), tensors: [...new Set((g.nodes || []).flatMap((n) => (n.inputs || []).flatMap(
        (i) => i.value.filter((v) => v && v.initializer).map((v) => v.name))))].sort(), inputs: (g.inputs || []).map((i) => i.name), outputs: (g.outputs || []).length
}));
console.log(JSON.stringify({ format: model.format, graphs }));
