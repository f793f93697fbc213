/** Every place of the console, in groups, as the navigation has them. */
export const groups = [
  {
    name: 'Work',
    places: [
      { to: '/', label: 'Overview' }, { to: '/inbox', label: 'Unknown outcomes' }, { to: '/batches', label: 'Batches' }, { to: '/start', label: 'Start' },
      { to: '/sets', label: 'Record sets' },
    ],
  },
  { name: 'Starts', places: [{ to: '/flows', label: 'Flows' }, { to: '/schedules', label: 'Schedules' }, { to: '/webhooks', label: 'Webhooks' }, { to: '/events', label: 'Events' }] },
  { name: 'Data', places: [{ to: '/variables', label: 'Variables' }, { to: '/stores', label: 'Stores' }] },
  {
    name: 'Providers',
    places: [{ to: '/accounts', label: 'Accounts' }, { to: '/credentials', label: 'Credentials' }, { to: '/tenants', label: 'Tenants' }, { to: '/catalog', label: 'Catalog' }],
  },
  {
    name: 'Organization',
    places: [{ to: '/usage', label: 'Usage' }, { to: '/limits', label: 'Limits' }, { to: '/keys', label: 'API keys' }, { to: '/audit', label: 'Audit' }],
  },
] as const;
