import { defineConfig } from '@hey-api/openapi-ts';

// src/gen follows from the API document; `make generate` writes it anew.
export default defineConfig({
  input: '../../openapi.yaml',
  logs: { file: false, level: 'warn' },
  output: { path: 'src/gen', clean: true },
  plugins: [{ name: '@hey-api/client-fetch' }, { name: '@hey-api/typescript' }, { name: '@hey-api/sdk' }],
});
