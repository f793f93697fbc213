import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { RouterProvider } from '@tanstack/react-router';
import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';

import { mayRetry } from './api/client';
import { makeRouter } from './app/router';
import './styles.css';

const queries = new QueryClient({
  defaultOptions: { queries: { retry: mayRetry, staleTime: 1000, refetchOnWindowFocus: true, refetchIntervalInBackground: false } },
});
const router = makeRouter();

declare module '@tanstack/react-router' {
  interface Register {
    router: ReturnType<typeof makeRouter>;
  }
}

createRoot(document.getElementById('root')!).render(
  <StrictMode>
    <QueryClientProvider client={queries}>
      <RouterProvider router={router} />
    </QueryClientProvider>
  </StrictMode>,
);
