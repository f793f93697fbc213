import { QueryCache, QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { RouterProvider } from '@tanstack/react-router';
import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';

import { mayRetry, signedOut } from './api/client';
import { makeRouter } from './app/router';
import './styles.css';

const queries: QueryClient = new QueryClient({
  // Whatever is refused first because a session has ended, the frame hears of it and asks to sign in again.
  queryCache: new QueryCache({
    onError: (error, query) => {
      if (signedOut(error) && query.queryKey[0] !== 'me') void queries.invalidateQueries({ queryKey: ['me'] });
    },
  }),
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
