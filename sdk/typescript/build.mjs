// Compiles src twice, for `import` and for `require`: dist is what the package ships.
import { execFileSync } from 'node:child_process';
import { rmSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const compiler = fileURLToPath(new URL('node_modules/typescript/bin/tsc', import.meta.url));
const formats = { esm: [], cjs: ['--module', 'commonjs', '--moduleResolution', 'node10'] };

rmSync('dist', { recursive: true, force: true });
for (const [format, options] of Object.entries(formats)) {
  execFileSync(process.execPath, [compiler, '--outDir', `dist/${format}`, ...options], { stdio: 'inherit' });
}
// The files of the package are modules; these are not.
writeFileSync('dist/cjs/package.json', '{"type":"commonjs"}\n');
