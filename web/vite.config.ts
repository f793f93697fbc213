import react from '@vitejs/plugin-react';
import { defineConfig } from 'vite';

// The strict policy of the server allows nothing inline, so no asset becomes a data: address and no script stands in the page.
export default defineConfig({
  base: '/console/',
  plugins: [react()],
  build: {
    outDir: '../internal/console/dist',
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: 'es2023',
    license: { fileName: 'licenses.md' },
  },
});
